# Exact loss of a round of check-in by removal, all other clients on the opposite vector: FFT of finely
# gridded losses, no bound. Golden values for account/removal_test.go.
import numpy as np
from scipy.stats import norm, binom
from scipy.optimize import brentq
def laws(n,g,s,h,N,low):
    # masses under P of log P/Q, and under Q of log Q/P, to nearest grid point, fine cells
    out={}
    fwd=np.zeros(N); bwd=np.zeros(N)
    def put(arr,loss,mass):
        x=loss/h-low; i=np.floor(x).astype(int); f=x-i
        ok=(i>=0)&(i<N-1)
        np.add.at(arr,i[ok],(mass*(1-f))[ok]); np.add.at(arr,i[ok]+1,(mass*f)[ok])
    ks=np.arange(0,n)
    b=binom.pmf(ks,n-1,g)
    for k in ks:
        if b[k]<1e-22: continue
        if k==0:
            l=np.array([np.log1p(-g)]); put(fwd,l,np.array([b[0]*(1-g)])); put(bwd,-l,np.array([b[0]])); continue
        mu=2/(s*np.sqrt(k)); r=k*(1-g)/((n-k)*g)
        e=np.linspace(-9-mu,9+mu,40001); c=(e[1:]+e[:-1])/2
        a=np.diff(norm.cdf(e+mu/2)) ; a=np.where(c>0,norm.sf(e[:-1]+mu/2)-norm.sf(e[1:]+mu/2),a)
        bb=np.where(c>0,norm.sf(e[:-1]-mu/2)-norm.sf(e[1:]-mu/2),np.diff(norm.cdf(e-mu/2)))
        q=b[k]*a; p=b[k]*((1-g)*a+g*r*bb)
        ok=(q>1e-30)&(p>1e-30)
        l=np.log(p[ok]/q[ok])
        put(fwd,l,p[ok]); put(bwd,-l,q[ok])
    return fwd,bwd
def eps(n,g,s,T,delta,span=12.,N=2**21):
    h=span/N; low=-int(N*.45)
    res=[]
    for arr in laws(n,g,s,h,N,low):
        f=np.fft.rfft(np.roll(arr,low)) # position of loss 0 at index 0
        m=np.fft.irfft(f**T,N); m=np.roll(m,-low); m=np.maximum(m,0)
        x=(np.arange(N)+low)*h
        def d(e): 
            w=x>e
            return np.sum(m[w]*-np.expm1(e-x[w]))+ (1-arr.sum())*T*0
        res.append(brentq(lambda e:d(e)-delta,0,5) if d(0)>delta else 0)
    return max(res),res
for a in [(1000,.01,1,1,1e-4),(1000,.01,1,2,1e-4),(1000,.01,1,10,1e-4),(1000,.01,1,100,1e-4),(1000,.1,2,100,1e-5),(100,.2,1,10,1e-5),(100,.05,3,50,1e-6),(10,.3,4,20,1e-3),(400,.5,.7,3,1e-7)]:
    print(a,eps(*a))
